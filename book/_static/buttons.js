// What the theme's buttons do: a page allows no script in an attribute.
document.addEventListener("DOMContentLoaded", () => {
  const actions = { print: () => window.print(), fullscreen: () => window.toggleFullScreen() };
  for (const button of document.querySelectorAll("[data-press]")) {
    button.addEventListener("click", actions[button.dataset.press]);
  }
});
