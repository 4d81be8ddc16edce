// Folds what a chapter marks as `dropdown` (answers to problems), as JupyterLab does, and its notation.
document.addEventListener("DOMContentLoaded", () => {
  function fold(whole, title, className) {
    const folded = document.createElement("details");
    folded.className = className;
    folded.append(title, ...[...whole.childNodes].filter((node) => node !== title));
    return folded;
  }

  for (const answer of document.querySelectorAll(".admonition.dropdown")) {
    const title = document.createElement("summary");
    title.className = "admonition-title";
    title.append(...answer.querySelector(".admonition-title").childNodes);
    answer.querySelector(".admonition-title").remove();
    answer.replaceWith(fold(answer, title, answer.className));
  }

  const notation = document.querySelector("section#notation");
  const heading = notation?.querySelector(":scope > h2");
  if (!heading) return;
  const title = document.createElement("summary");
  title.append(heading);
  const folded = fold(notation, title, "trn-notation");
  notation.append(folded);
  const open = () => location.hash === "#notation" && (folded.open = true);
  addEventListener("hashchange", open);
  open();
});
