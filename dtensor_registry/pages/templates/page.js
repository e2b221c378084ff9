"use strict";
(() => {
  const told = document.getElementById("told");

  const valueOf = (row, column) => {
    const cell = row.cells[column];
    return cell.dataset.value === undefined ? cell.textContent.trim() : Number(cell.dataset.value);
  };

  const compare = (a, b) =>
    typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b));

  const sort = (table, heading) => {
    const headings = [...heading.parentElement.cells];
    const column = headings.indexOf(heading);
    const order = heading.getAttribute("aria-sort") === "ascending" ? "descending" : "ascending";
    const sign = order === "ascending" ? 1 : -1;
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => sign * compare(valueOf(a, column), valueOf(b, column)));
    table.tBodies[0].append(...rows);
    headings.forEach((other) => other.setAttribute("aria-sort", other === heading ? order : "none"));
    told.textContent = `sorted by ${heading.textContent.trim()}, ${order}`;
  };

  document.querySelectorAll("table.sortable").forEach((table) => {
    table.tHead.addEventListener("click", (event) => {
      const heading = event.target.closest("th");
      if (heading !== null && event.target.closest("button") !== null) sort(table, heading);
    });
  });
})();
