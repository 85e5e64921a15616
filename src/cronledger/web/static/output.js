// Shows the output of a running execution as it comes, and copies it. The server escapes the HTML of each event.
const MOST = 500000;  // characters of a page that is open for long
const shown = document.getElementById("output-text");
const address = shown?.dataset.follow;
const state = document.getElementById("output-state");

function add(html, isWhole) {
  const atEnd = shown.scrollTop + shown.clientHeight >= shown.scrollHeight - 24;
  if (isWhole) shown.replaceChildren();
  const part = document.createElement("span");
  part.innerHTML = html;
  shown.append(part);
  while (shown.textContent.length > MOST && shown.firstChild !== part) shown.firstChild.remove();
  if (atEnd) shown.scrollTop = shown.scrollHeight;
}

function follow() {
  const source = new EventSource(address);  // continues by itself where it was
  state.textContent = "live";
  source.addEventListener("output", (event) => add(JSON.parse(event.data), false));
  source.addEventListener("whole", (event) => add(JSON.parse(event.data), true));
  source.addEventListener("end", () => { source.close(); state.textContent = "ended"; });
  source.addEventListener("error", () => {
    if (source.readyState === EventSource.CLOSED) state.textContent = "not live: reload the page";
  });
  addEventListener("pagehide", () => source.close());
}

const copy = document.getElementById("output-copy");
if (copy) {
  copy.hidden = false;
  copy.addEventListener("click", async () => {
    if (navigator.clipboard) {
      await navigator.clipboard.writeText(shown.textContent);
    } else {  // without HTTPS
      getSelection().selectAllChildren(shown);
      document.execCommand("copy");
    }
    copy.textContent = "Copied";
  });
}
if (address) {
  shown.scrollTop = shown.scrollHeight;
  follow();
}
