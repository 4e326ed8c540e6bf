for (const box of document.querySelectorAll(".find")) {
  const input = box.querySelector("input"), count = box.querySelector("[role=status]");
  const rows = [...document.getElementById(box.dataset.rows).tBodies[0].rows];
  const show = () => {
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let found = 0;
    for (const row of rows) {
      const text = row.textContent.toLowerCase();
      row.hidden = !words.every(word => text.includes(word));
      found += !row.hidden;
    }
    count.textContent = words.length ? `${found} of ${rows.length}` : "";
  };
  input.addEventListener("input", show);
  box.hidden = false;
}
