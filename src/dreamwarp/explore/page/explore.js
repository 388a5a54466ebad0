"use strict";

// The page is a function of `state`; `shown` is what it currently shows, for tests and downloads.
const state = {
  classNumber: 0, sample: 0, upload: null, coefficients: [], strength: 1, landmarks: [],
  seed: 1, firstMember: 0, nSliders: 8, view: "warp", pair: [0, 1], axis: 2, place: 0.5,
};
const shown = { latencies: [], warp: null, pair: null, mosaic: null };
const N_MEMBERS = 12, LIMIT = 3;
let model = null, kind = null;
window.dreamwarp = { state, shown };

const $ = (name) => document.getElementById(name);

function make(tag, attributes, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}

// What of the samples is asked for: of volumes, a slice.
const view = () => ({ axis: state.axis, place: state.place });

// -- requests

async function ask(path, body) {
  const options = body === undefined ? {} : body instanceof Blob
    ? { method: "POST", body, headers: { "content-type": "application/octet-stream" } }
    : { method: "POST", body: JSON.stringify(body), headers: { "content-type": "application/json" } };
  let answer;
  try {
    answer = await fetch(path, options);
  } catch {
    throw new Error("The server does not answer. Is `dreamwarp explore` still running?");
  }
  const content = await answer.json().catch(() => ({ error: "The answer can't be read." }));
  if (!answer.ok) throw new Error(content.error || `The server answered ${answer.status}.`);
  return content;
}

let hiding = null;
function say(words) {
  $("message").textContent = words;
  $("message").hidden = !words;
  clearTimeout(hiding);
  if (words) hiding = setTimeout(() => say(""), 8000);
}

const guarded = (task) => (...args) => Promise.resolve(task(...args)).catch((error) => say(error.message));

// Runs a task for the latest request only: requests made while it runs are merged into one.
function latest(task) {
  let running = false, wanted = false;
  return guarded(async () => {
    wanted = true;
    if (running) return;
    running = true;
    try {
      while (wanted) { wanted = false; await task(); }
    } finally { running = false; }
  });
}

// -- drawing

// The canvases of a picture, one over the other.
function layers(frame) {
  if (!frame.firstChild) frame.append(make("canvas", { class: kind.canvasClass, role: "img" }), make("canvas", { class: "over" }));
  return { below: frame.children[0], over: frame.children[1] };
}

// -- the warp view

const update = latest(async () => {
  const start = performance.now();
  const answer = await ask("/api/warp", {
    class_number: state.classNumber, sample: state.upload ?? state.sample,
    coefficients: trim(state.coefficients), strength: state.strength,
    landmarks: kind.hasLandmarks ? state.landmarks : [], ...view(),
  });
  shown.warp = { ...answer, sample: kind.unpack(answer.image) };
  drawWarp();
  $("python").textContent = answer.python;
  const taken = performance.now() - start;
  shown.latencies.push(taken);
  $("latency").textContent = `${taken.toFixed(0)} ms`;
});

function trim(values) {
  let n = values.length;
  while (n && !values[n - 1]) n--;
  return values.slice(0, n).map((value) => Math.round(1000 * value) / 1000);
}

function drawWarp() {
  const answer = shown.warp;
  if (!answer || !shown.original) return;
  const original = layers($("original")), warped = layers($("warped"));
  kind.draw(original.below, shown.original);
  kind.draw(warped.below, answer.sample, shown.original);
  original.below.setAttribute("aria-label", `Sample ${state.sample} of class ${model.classes[state.classNumber].label}`);
  warped.below.setAttribute("aria-label", "The sample, warped");
  kind.drawOver(original, warped, answer, state.landmarks, $("show-grid").checked);
  kind.drawField(layers($("field")), answer, shown.original, answer.sample, false);
}

async function loadOriginal() {
  const answer = await ask("/api/sample", { class_number: state.classNumber, sample: state.upload ?? state.sample, ...view() });
  shown.original = kind.unpack(answer.image);
}

async function choose(sample) {
  state.sample = sample; state.upload = null;
  await loadOriginal();
  markMembers();
  await update();
}

async function loadMembers() {
  const { count } = model.classes[state.classNumber];
  state.firstMember = Math.max(0, Math.min(state.firstMember, count - 1));
  const answer = await ask("/api/members", { class_number: state.classNumber, first: state.firstMember, n: N_MEMBERS, ...view() });
  fillMembers($("members"), answer, (member) => guarded(choose)(member));
  $("earlier").disabled = state.firstMember === 0;
  $("later").disabled = state.firstMember + N_MEMBERS >= count;
  markMembers();
}

function fillMembers(box, answer, onChoose) {
  box.replaceChildren();
  if (!answer.images) return;
  const drawn = kind.unpackAll(answer.images).map((sample, k) => {
    const member = answer.first + k, canvas = make("canvas", { class: kind.canvasClass });
    const button = make("button", { "data-member": member, "aria-label": `Sample ${member}` }, canvas);
    box.append(button);
    button.addEventListener("click", () => onChoose(member));
    return [canvas, sample];
  });
  for (const [canvas, sample] of drawn) kind.draw(canvas, sample);
}

function markMembers() {
  for (const button of $("members").children) button.setAttribute("aria-pressed", !state.upload && Number(button.dataset.member) === state.sample);
  $("sample-number").textContent = state.upload ? "your own" : `${state.sample + 1} of ${model.classes[state.classNumber].count}`;
  [["first-members", 0], ["second-members", 1]].forEach(([name, end]) => {
    for (const button of $(name).children) button.setAttribute("aria-pressed", Number(button.dataset.member) === state.pair[end]);
  });
}

// -- sliders

function makeSliders() {
  const { shares } = model.classes[state.classNumber], n = Math.min(state.nSliders, shares.length);
  $("sliders").replaceChildren(...Array.from({ length: n }, (_, k) => makeSlider(k, shares[k])));
  $("more").hidden = n >= shares.length;
  showCoefficients();
}

function makeSlider(k, share) {
  const id = `component-${k + 1}`;
  const label = make("label", { for: id }, `PC ${k + 1} · ${(100 * share).toFixed(share < 0.095 ? 1 : 0)} %`);
  const input = make("input", { id, type: "range", min: -LIMIT, max: LIMIT, step: 0.05, value: 0 });
  const sway = make("button", { "aria-label": `Sway component ${k + 1}`, "aria-pressed": false }, "▸");
  input.addEventListener("input", () => { stop(); set(k, Number(input.value)); update(); });
  input.addEventListener("dblclick", () => { set(k, 0); update(); });
  sway.addEventListener("click", () => toggleSway(k, sway));
  return make("div", { class: "slider" }, label, input, make("output", {}), sway);
}

function set(k, value) {
  while (state.coefficients.length <= k) state.coefficients.push(0);
  state.coefficients[k] = value;
  showCoefficients();
}

function showCoefficients() {
  [...$("sliders").children].forEach((row, k) => {
    const value = state.coefficients[k] || 0;
    row.children[1].value = value;
    row.children[2].textContent = value.toFixed(2).replace("-", "−");
  });
}

// -- dice and play

async function roll() {
  state.seed = Math.floor(Math.random() * 2 ** 40);
  return (await ask("/api/dice", { class_number: state.classNumber, sample: state.sample, seed: state.seed })).coefficients;
}

let playing = null;
function stop() {
  if (!playing) return;
  playing.button.setAttribute("aria-pressed", "false");
  playing.button.textContent = playing.words;
  playing = null;
}

function start(button, step) {
  const same = playing && playing.button === button;
  stop();
  if (same) return;
  const run = { button, words: button.textContent };
  playing = run;
  button.setAttribute("aria-pressed", "true");
  button.textContent = button.id === "play" ? "Stop" : "■";
  const begin = performance.now();
  const loop = async (now) => {
    if (playing !== run) return;
    // The time of a frame may be slightly before the click.
    await step(Math.max(0, now - begin) / 1000);
    if (playing !== run) return;
    showCoefficients();
    await update();
    requestAnimationFrame(loop);
  };
  requestAnimationFrame(loop);
}

function toggleSway(k, button) {
  start(button, (seconds) => { set(k, LIMIT * Math.sin(1.6 * seconds)); });
}

// Moves from one random warp to the next along a circle, so that sizes stay those of random warps.
function togglePlay() {
  let from = null, to = null, leg = -1;
  start($("play"), async (seconds) => {
    const now = Math.floor(seconds / 1.8);
    if (now !== leg) {
      from = to || Array.from({ length: model.dim }, (_, k) => state.coefficients[k] || 0);
      to = await roll();
      leg = now;
    }
    const angle = (seconds / 1.8 - leg) * Math.PI / 2, c = Math.cos(angle), s = Math.sin(angle);
    state.coefficients = to.map((value, k) => Math.max(-8, Math.min(8, c * (from[k] || 0) + s * value)));
  });
}

// -- the mosaic

const updateMosaic = latest(async () => {
  const class_number = $("all-classes").checked ? null : state.classNumber;
  const answer = await ask("/api/mosaic", { class_number, n: 40, strength: state.strength, seed: state.seed, ...view() });
  shown.mosaic = kind.unpackAll(answer.images);
  const boxes = shown.mosaic.map((sample, k) => {
    const label = answer.labels[k];
    const canvas = make("canvas", { class: kind.canvasClass, role: "img", "aria-label": `A new sample of class ${label}` });
    return [make("figure", {}, canvas, make("figcaption", {}, label)), canvas, sample];
  });
  $("mosaic").replaceChildren(...boxes.map(([figure]) => figure));
  boxes.forEach(([, canvas, sample]) => kind.draw(canvas, sample));
});

// -- a pair

const updatePair = latest(async () => {
  $("pair-words").textContent = "Aligning…";
  const answer = await ask("/api/align", { class_number: state.classNumber, first: state.pair[0], second: state.pair[1], ...view() })
    .catch((error) => { $("pair-words").textContent = "This pair could not be aligned."; throw error; });
  const [source, target, warped] = [answer.source, answer.target, answer.warped].map((one) => kind.unpack(one));
  shown.pair = { ...answer, source, target, warped };
  $("pair-python").textContent = answer.python;
  const words = answer.left === null ? "The two samples are identical." : `${(100 * answer.left).toFixed(0)} % ${kind.rest}.`;
  $("pair-words").textContent = answer.is_usable ? words : "This pair can't be aligned: one sample is constant.";
  drawPair();
});

let blinking = null;
function drawPair(phase = "warped") {
  const pair = shown.pair;
  if (!pair) return;
  kind.draw(layers($("pair-source")).below, pair.source);
  kind.draw(layers($("pair-target")).below, pair.target);
  kind.draw(layers($("pair-warped")).below, pair[phase]);
  $("pair-caption").textContent = phase === "warped" ? "After" : "After · target";
  kind.drawDifference(layers($("pair-before")).below, pair.source, pair.target);
  kind.drawDifference(layers($("pair-after")).below, pair.warped, pair.target);
  kind.drawField(layers($("pair-field")), pair, pair.source, pair.warped, true);
}

function toggleBlink() {
  if (blinking) { clearInterval(blinking); blinking = null; drawPair(); }
  else {
    let phase = false;
    blinking = setInterval(() => { phase = !phase; drawPair(phase ? "target" : "warped"); }, 550);
  }
  $("blink").setAttribute("aria-pressed", blinking !== null);
}

async function loadPairMembers() {
  const answer = await ask("/api/members", { class_number: state.classNumber, first: state.firstMember, n: N_MEMBERS, ...view() });
  ["first-members", "second-members"].forEach((name, end) => fillMembers($(name), answer, (member) => {
    state.pair[end] = member;
    markMembers();
    updatePair();
  }));
  markMembers();
}

async function chooseRandomPair() {
  const { count } = model.classes[state.classNumber];
  state.pair = [Math.floor(Math.random() * count), Math.floor(Math.random() * count)];
  if (count > 1 && state.pair[0] === state.pair[1]) state.pair[1] = (state.pair[1] + 1) % count;
  markMembers();
  await updatePair();
}

// -- your own

async function bring(file) {
  if (!file) return;
  if (file.size > 8 * 2 ** 20) throw new Error("The file must have at most 8 MB.");
  if (!model.uploads) throw new Error(`Your own ${model.plural} can't be dropped here: put them into the folder of the data.`);
  state.upload = (await ask("/api/upload", file)).sample;
  state.landmarks = [];
  await loadOriginal();
  show("warp");
  markMembers();
  await update();
}

async function download() {
  const name = `dreamwarp-${model.classes[state.classNumber].label}-${state.upload ? "own" : state.sample}`.replace(/[^\w.-]+/g, "_");
  const [suffix, blob] = await kind.download(shown.warp.sample, layers($("warped")).below);
  save(blob, `${name}.${suffix}`);
}

function save(blob, name) {
  const link = make("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

async function copy(button, text) {
  const words = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
    button.textContent = "Copied";
  } catch {
    getSelection().selectAllChildren(button.closest(".code").querySelector("code"));
    button.textContent = "Selected: copy it";
  }
  setTimeout(() => { button.textContent = words; }, 1500);
}

// -- slices

// After another slice or class was chosen.
async function updateAll() {
  await Promise.all([loadMembers(), loadOriginal()]);
  await update();
  await updateView();
}

async function updateView() {
  if (state.view === "mosaic") updateMosaic();
  if (state.view === "align") { await loadPairMembers(); await updatePair(); }
}

const updateSlice = latest(updateAll);

function chooseSlice(axis, number) {
  const n = model.shape[1 + axis];
  Object.assign(state, { axis, place: (number - 0.5) / n });
  Object.assign($("place"), { max: n, value: number });
  $("place-value").textContent = `${number} of ${n}`;
}

function makeSlices() {
  $("slice-part").hidden = !kind.hasSlices;
  if (!kind.hasSlices) return;
  $("slice-hint").hidden = !model.is_anatomical;
  if (model.is_anatomical) ["sagittal", "coronal", "axial"].forEach((name, axis) => { $("axis").options[axis].text = name; });
  const start = (axis) => chooseSlice(axis, Math.floor(model.shape[1 + axis] / 2) + 1);
  start(state.axis);
  $("axis").addEventListener("change", () => { start(Number($("axis").value)); updateSlice(); });
  $("place").addEventListener("input", () => { chooseSlice(state.axis, Number($("place").value)); updateSlice(); });
}

// -- views and classes

function show(view) {
  state.view = view;
  if (view !== "warp") stop();
  if (view !== "align" && blinking) toggleBlink();
  for (const name of ["warp", "mosaic", "align"]) {
    const chosen = name === view;
    $(`tab-${name}`).setAttribute("aria-selected", chosen);
    $(`tab-${name}`).tabIndex = chosen ? 0 : -1;
    $(`panel-${name}`).hidden = !chosen;
    $(`${name}-part`).hidden = !chosen;
  }
  $("sample-part").hidden = view !== "warp";
  $("strength-part").hidden = view === "align";
  if (view === "warp") drawWarp();
  guarded(updateView)();
}

async function chooseClass(number) {
  const { typical, count } = model.classes[number];
  state.classNumber = number;
  state.firstMember = N_MEMBERS * Math.floor(typical / N_MEMBERS);
  state.coefficients = [];
  state.pair = [typical, (typical + 1) % count];
  [...$("classes").children].forEach((button, k) => {
    button.setAttribute("aria-checked", k === number);
    button.tabIndex = k === number ? 0 : -1;
  });
  makeSliders();
  if (!state.upload) state.sample = typical;
  await updateAll();
}

function makeClasses() {
  $("classes").replaceChildren(...model.classes.map(({ label, count }, number) => {
    const button = make("button", { role: "radio", title: `${count} samples` }, label);
    button.addEventListener("click", () => { stop(); guarded(chooseClass)(number); });
    return button;
  }));
}

// Arrow keys move the selection within a group.
function moveByArrows(group, kind) {
  group.addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 }[event.key];
    const all = [...group.querySelectorAll(`[role=${kind}]`)], at = all.indexOf(document.activeElement);
    if (!step || at < 0) return;
    event.preventDefault();
    const next = all[(at + step + all.length) % all.length];
    next.focus(); next.click();
  });
}

function placeLandmark(event) {
  const box = event.currentTarget.getBoundingClientRect();
  const point = [(event.clientY - box.top) / box.height, (event.clientX - box.left) / box.width].map((v) => Math.round(1e4 * Math.min(1, Math.max(0, v))) / 1e4);
  if (state.landmarks.length >= 64) { say("There are 64 landmarks: clear them first."); return; }
  state.landmarks.push(point);
  update();
}

function connect() {
  moveByArrows($("classes"), "radio");
  moveByArrows($("tabs"), "tab");
  for (const name of ["warp", "mosaic", "align"]) $(`tab-${name}`).addEventListener("click", () => show(name));
  $("earlier").addEventListener("click", guarded(() => { state.firstMember -= N_MEMBERS; return loadMembers(); }));
  $("later").addEventListener("click", guarded(() => { state.firstMember += N_MEMBERS; return loadMembers(); }));
  $("random-sample").addEventListener("click", guarded(async () => {
    const member = Math.floor(Math.random() * model.classes[state.classNumber].count);
    state.firstMember = N_MEMBERS * Math.floor(member / N_MEMBERS);
    await loadMembers();
    await choose(member);
  }));
  $("upload").addEventListener("change", (event) => guarded(bring)(event.target.files[0]));
  $("strength").addEventListener("input", () => {
    state.strength = Number($("strength").value);
    $("strength-value").textContent = state.strength.toFixed(2);
    if (state.view === "mosaic") updateMosaic(); else update();
  });
  $("dice").addEventListener("click", guarded(async () => { stop(); state.coefficients = await roll(); showCoefficients(); await update(); }));
  $("play").addEventListener("click", togglePlay);
  $("reset").addEventListener("click", () => { stop(); state.coefficients = []; showCoefficients(); update(); });
  $("more").addEventListener("click", () => { state.nSliders += 8; makeSliders(); });
  $("show-grid").addEventListener("change", drawWarp);
  $("clear").addEventListener("click", () => { state.landmarks = []; update(); });
  $("download").addEventListener("click", guarded(download));
  $("copy").addEventListener("click", () => copy($("copy"), $("python").textContent));
  $("copy-pair").addEventListener("click", () => copy($("copy-pair"), $("pair-python").textContent));
  $("reroll").addEventListener("click", () => { state.seed = Math.floor(Math.random() * 2 ** 40); updateMosaic(); });
  $("all-classes").addEventListener("change", updateMosaic);
  $("random-pair").addEventListener("click", guarded(chooseRandomPair));
  $("blink").addEventListener("click", toggleBlink);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || /^(INPUT|TEXTAREA|SELECT)$/.test(event.target.tagName) && event.target.type !== "range") return;
    const button = { d: "dice", p: "play", r: "reset" }[event.key.toLowerCase()];
    if (button && state.view === "warp") $(button).click();
  });
  for (const kind of ["dragenter", "dragover"]) document.addEventListener(kind, (event) => { event.preventDefault(); $("drop").hidden = false; });
  document.addEventListener("dragleave", (event) => { if (!event.relatedTarget) $("drop").hidden = true; });
  document.addEventListener("drop", (event) => { event.preventDefault(); $("drop").hidden = true; guarded(bring)(event.dataTransfer.files[0]); });
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

let drawing = false;
function redraw() {
  if (drawing) return;
  drawing = true;
  requestAnimationFrame(() => {
    drawing = false;
    if (state.view === "warp") drawWarp(); else if (state.view === "align") drawPair();
  });
}

async function begin() {
  model = await ask("/api/model");
  kind = new KINDS[model.kind](model);
  document.body.classList.add(model.kind, model.is_ink ? "ink" : "photo");
  if (model.shape && [3, 4].includes(model.shape[0])) document.body.classList.remove("ink");
  const total = model.classes.reduce((sum, { count }) => sum + count, 0);
  const lanes = (model.lanes || []).length, channels = lanes ? `, ${lanes < model.shape[0] ? `${lanes} of ` : ""}${model.shape[0]} channels` : "";
  $("about").textContent = `${model.model} · ${model.data}: ${total.toLocaleString("en")} ${model.plural} of ${model.size}${channels} in ${model.classes.length} classes · ${model.cells.join(" × ")} cells`;
  state.strength = Math.min(3, model.strength);
  $("strength").value = state.strength;
  $("strength-value").textContent = state.strength.toFixed(2);
  $("upload").accept = model.uploads;
  $("upload-label").hidden = !model.uploads;
  $("field-caption").textContent = kind.fieldCaption;
  $("pair-field-caption").textContent = kind.pairFieldCaption;
  $("show-grid").parentElement.hidden = !kind.hasGrid;
  for (const name of ["hint", "clear"]) $(name).hidden = !kind.hasLandmarks;
  if (kind.hasLandmarks) layers($("original")).over.addEventListener("click", placeLandmark);
  kind.connect(document.querySelectorAll(".frame"), redraw);
  makeSlices();
  if (matchMedia("(max-width: 56rem)").matches) for (const box of document.querySelectorAll("details.code")) box.open = false;
  makeClasses();
  connect();
  await chooseClass(0);
  document.body.dataset.ready = "true";
}

guarded(begin)();
