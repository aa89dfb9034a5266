import { sparkline } from "../series";

const WIDTH = 96;
const HEIGHT = 22;

interface Props {
  values: number[];
  /** Marked below, where there were any. */
  bad?: number[];
  label: string;
}

export function Sparkline({ values, bad = [], label }: Props) {
  const points = sparkline(values, WIDTH, HEIGHT - 4);
  const step = WIDTH / Math.max(bad.length - 1, 1);
  return (
    <svg
      class="sparkline"
      viewBox={`0 -1 ${WIDTH} ${HEIGHT + 1}`}
      width={WIDTH}
      height={HEIGHT}
      preserveAspectRatio="none"
      role="img"
      aria-label={label}
    >
      <polygon points={`0,${HEIGHT - 4} ${points} ${WIDTH},${HEIGHT - 4}`} />
      <polyline points={points} />
      {bad.map((value, index) =>
        value > 0 ? <rect key={index} x={index * step - 1} y={HEIGHT - 3} width={2} height={3} /> : null,
      )}
    </svg>
  );
}
