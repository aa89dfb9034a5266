// Arrowheads in a colour that can be seen in light and in dark.
const initialize = mermaid.initialize;
mermaid.initialize = (config) =>
  initialize({ ...config, themeVariables: { ...config.themeVariables, lineColor: "#7f8c97", arrowheadColor: "#7f8c97" } });

// On a phone a diagram scrolls instead of shrinking until its text cannot be read. The drawing is in a closed shadow tree, which
// style sheets of the page do not reach, so its least width is written into the drawing itself.
const READABLE_PX = 660;
const render = mermaid.render;
mermaid.render = async (...given) => {
  const drawn = await render(...given);
  const svg = drawn.svg.replace(
    /max-width: ([\d.]+)px;/,
    (whole, natural) => `${whole} min-width: ${Math.min(natural, READABLE_PX)}px;`,
  );
  return { ...drawn, svg };
};
