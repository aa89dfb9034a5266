/** Drawn in a box of 16, in the colour of the text. */
const PATHS = {
  overview: "M2 9.5h3l2-6 3 9 2-5h2",
  databases:
    "M8 2.2c3 0 5.2.9 5.2 2s-2.2 2-5.2 2-5.2-.9-5.2-2 2.2-2 5.2-2zM2.8 4.2v7.6c0 1.1 2.2 2 5.2 2s5.2-.9 5.2-2V4.2M2.8 8c0 1.1 2.2 2 5.2 2s5.2-.9 5.2-2",
  trends: "M2.5 2.5v11h11M4.8 10.5 7.5 7l2.3 2L13.2 4.5",
  jobs: "M2.5 4h11M2.5 8h11M2.5 12h7",
  chains: "M5.5 4.5h-1a2 2 0 0 0-2 2v3a2 2 0 0 0 2 2h1M10.5 4.5h1a2 2 0 0 1 2 2v3a2 2 0 0 1-2 2h-1M5.5 8h5",
  "dead-letters":
    "M2.5 5.5 8 9l5.5-3.5M3.5 3.5h9a1 1 0 0 1 1 1v7a1 1 0 0 1-1 1h-9a1 1 0 0 1-1-1v-7a1 1 0 0 1 1-1z",
  "bulk-actions": "M2.5 4h6M2.5 8h6M2.5 12h6M10.5 5.2l3.5 2.8-3.5 2.8z",
  queues: "M2.5 3.5h11v2.6h-11zM2.5 8h11v4.5h-11zM5 10.2h6",
  limits: "M2.5 12.2a5.8 5.8 0 1 1 11 0M8 10.4 11 6M8 9.4a1 1 0 1 0 .1 0z",
  workers: "M4 4h8v8H4zM6.5 1.8V4M9.5 1.8V4M6.5 12v2.2M9.5 12v2.2M1.8 6.5H4M1.8 9.5H4M12 6.5h2.2M12 9.5h2.2",
  runners: "M8 2.5a5.5 5.5 0 1 0 5.5 5.5M8 5v3l2 1.5M10.5 2.8l2.7.2-.2 2.7",
  relays: "M3 8h7M7.5 4.5 11 8l-3.5 3.5M13.2 3v10",
  archive: "M2.5 3h11v3.2h-11zM3.5 6.2v6.8h9V6.2M6.3 8.8h3.4",
  audit: "M4 2.5h5.5L12 5v8.5H4zM6.2 7h3.6M6.2 9.5h3.6M6.2 4.8h1.6",
  completed: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM5.4 8.2l1.8 1.8 3.5-3.7",
  failed: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM6 6l4 4M10 6l-4 4",
  pending: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM8 5v3l2 1.5",
  processing: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM6.8 5.6 10.4 8l-3.6 2.4z",
  blocked: "M4.5 7.2h7v6h-7zM6 7.2V5a2 2 0 0 1 4 0v2.2",
  cancelled: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM4 12 12 4",
  warning: "M8 2.5 14.2 13H1.8zM8 6.5v3M8 11.2v.3",
  info: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM8 7.4v3.4M8 5.2v.3",
  retry: "M13 8a5 5 0 1 1-1.6-3.7M13 2.6v2.6h-2.6",
  refresh: "M13 8a5 5 0 0 1-9.2 2.7M3 8a5 5 0 0 1 9.2-2.7M12.6 2.4v3H9.7M3.4 13.6v-3h2.9",
  cancel: "M4 4l8 8M12 4l-8 8",
  dismiss: "M2.5 9.5v3h11v-3M8 3v6.5M5.2 7 8 9.5 10.8 7",
  remove: "M3 4.5h10M6.3 4.5V2.8h3.4v1.7M4.3 4.5l.6 8.7h6.2l.6-8.7M6.8 7v3.8M9.2 7v3.8",
  reschedule: "M3 3.8h10v9.4H3zM3 6.6h10M5.6 2.4v2.4M10.4 2.4v2.4M8 8.4v2l1.4 1",
  play: "M5 3.2 12.4 8 5 12.8z",
  pause: "M5.4 3.5v9M10.6 3.5v9",
  edit: "M3 13l.6-2.8L10.8 3 13 5.2l-7.2 7.2zM9.4 4.4l2.2 2.2",
  draining: "M2.5 3.5h11L9.6 8.2v4.2L6.4 13V8.2z",
  skip: "M3.5 3.5 9 8l-5.5 4.5zM11.5 3.5v9",
  replay: "M12.5 3.5 7 8l5.5 4.5zM4.5 3.5v9",
  release: "M4.5 7.2h7v6h-7zM6 7.2V5a2 2 0 0 1 3.8-.9",
  search: "M7 2.8a4.2 4.2 0 1 0 0 8.4 4.2 4.2 0 0 0 0-8.4zM10.2 10.2l3.3 3.3",
  copy: "M5.5 5.5h7.7v7.7H5.5zM10.5 5.5V2.8H2.8v7.7h2.7",
  menu: "M2.5 4.5h11M2.5 8h11M2.5 11.5h11",
  out: "M6.5 2.8H3.2v10.4h3.3M7 8h6.2M10.8 5.4 13.4 8l-2.6 2.6",
  key: "M5.5 7.3a3.2 3.2 0 1 0 .1 0zM8 8.2l5.5-5.4M11 5.2l1.8 1.8",
  system: "M2.5 3.5h11v7.2h-11zM6 13.4h4M8 10.7v2.7",
  light:
    "M8 5.2a2.8 2.8 0 1 0 0 5.6 2.8 2.8 0 0 0 0-5.6zM8 1.6v1.6M8 12.8v1.6M1.6 8h1.6M12.8 8h1.6M3.5 3.5l1.1 1.1M11.4 11.4l1.1 1.1M12.5 3.5l-1.1 1.1M4.6 11.4l-1.1 1.1",
  dark: "M13 9.4A5.4 5.4 0 0 1 6.6 3 5.4 5.4 0 1 0 13 9.4z",
  right: "M6 3.5 10.5 8 6 12.5",
  help: "M8 2.2a5.8 5.8 0 1 0 0 11.6A5.8 5.8 0 0 0 8 2.2zM6.3 6.4a1.8 1.8 0 1 1 2.4 1.7c-.5.2-.7.5-.7 1.1M8 11.2v.3",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name, size = 16 }: { name: IconName; size?: number }) {
  return (
    <svg class="icon" viewBox="0 0 16 16" width={size} height={size} aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
