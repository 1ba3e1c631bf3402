// Shows the draft that the path names, without loading another page.
const drafts = {
  twill: "2/2 twill: each pick moves one thread on, and a diagonal appears.",
  plain: "Plain weave: over one, under one.",
};
const main = document.querySelector("main");

function show(path) {
  const name = path.slice(1);
  const text = name === "" ? Object.keys(drafts).join(", ") : (drafts[name] ?? "No such draft.");
  main.textContent = text;
}

document.querySelector("nav").addEventListener("click", (event) => {
  const link = event.target.closest("a");
  if (!link) return;
  event.preventDefault();
  history.pushState(null, "", link.href);
  show(location.pathname);
});
addEventListener("popstate", () => show(location.pathname));
show(location.pathname);
