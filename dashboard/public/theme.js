// Loaded before anything is drawn, so that a remembered theme does not flash.
(() => {
  try {
    const theme = localStorage.getItem("holdfast.theme");
    if (theme === "light" || theme === "dark") document.documentElement.dataset.theme = theme;
  } catch {
    // Storage is refused: the system's theme it is.
  }
})();
