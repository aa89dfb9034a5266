/** A holdfast: what kelp keeps to the rock with. */
export function Logo({ size = 26 }: { size?: number }) {
  return (
    <svg class="logo" viewBox="0 0 32 32" width={size} height={size} aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" />
      <path d="M16 6v20M16 15c0 5-3 9-8 10M16 15c0 5 3 9 8 10M11 10h10" />
    </svg>
  );
}
