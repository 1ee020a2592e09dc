/* Draw the charts, switch the theme, prepare for printing. */
(() => {
  "use strict";

  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  root.classList.add("scripted");
  freeat.style.usePalette(data.palette);

  for (const element of document.querySelectorAll("[data-chart]")) {
    const spec = data.charts[element.dataset.chart];
    if (spec.kind === "line-chart") freeat.charts.lineChart(element, spec, element.dataset.chart);
    if (spec.kind === "heat-map") freeat.charts.heatMap(element, spec);
    if (spec.kind === "explorer") freeat.explorer.start(element, spec);
  }

  const button = document.getElementById("theme");
  const { isDark, prefersDark } = freeat.style;
  const update = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    freeat.charts.redrawAll();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    update();
  });
  prefersDark.addEventListener("change", update);
  update();

  // Paper is narrow and white, whatever the screen is.
  addEventListener("beforeprint", () => {
    root.dataset.printing = "";
    freeat.charts.drawAll();
    freeat.charts.redrawAll();
    freeat.charts.scaleAll(true);
  });
  addEventListener("afterprint", () => {
    delete root.dataset.printing;
    freeat.charts.scaleAll(false);
    freeat.charts.redrawAll();
  });
})();
