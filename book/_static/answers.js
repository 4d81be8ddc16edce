// Folds what a chapter marks as `dropdown` (answers to problems), as JupyterLab does.
document.addEventListener("DOMContentLoaded", () => {
  for (const answer of document.querySelectorAll(".admonition.dropdown")) {
    const folded = document.createElement("details");
    folded.className = answer.className;
    const title = document.createElement("summary");
    title.className = "admonition-title";
    title.append(...answer.querySelector(".admonition-title").childNodes);
    answer.querySelector(".admonition-title").remove();
    folded.append(title, ...answer.childNodes);
    answer.replaceWith(folded);
  }
});
