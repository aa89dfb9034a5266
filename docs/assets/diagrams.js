// Arrowheads in a colour that can be seen in light and in dark.
const initialize = mermaid.initialize;
mermaid.initialize = (config) =>
  initialize({ ...config, themeVariables: { ...config.themeVariables, lineColor: "#7f8c97", arrowheadColor: "#7f8c97" } });
