/* The page comes to life: charts in their places, the theme's switch, and paper. */
(() => {
  "use strict";

  const root = document.documentElement;
  const data = JSON.parse(document.getElementById("data").textContent);
  root.classList.add("scripted");
  freeat.looks.usePalette(data.palette);

  for (const place of document.querySelectorAll("[data-chart]")) {
    const spec = data.charts[place.dataset.chart];
    if (spec.kind === "line-chart") freeat.charts.lines(place, spec, place.dataset.chart);
    if (spec.kind === "heat-map") freeat.charts.density(place, spec);
    if (spec.kind === "explorer") freeat.explorer.start(place, spec);
  }

  const button = document.getElementById("theme");
  const { isDark, prefersDark } = freeat.looks;
  const tell = () => {
    button.setAttribute("aria-pressed", String(isDark()));
    freeat.charts.redrawAll();
  };
  button.addEventListener("click", () => {
    root.dataset.theme = isDark() ? "light" : "dark";
    tell();
  });
  prefersDark.addEventListener("change", tell);
  tell();

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
