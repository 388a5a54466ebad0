"use strict";

// The page is a function of `state`; `shown` is what it currently shows, for tests and downloads.
const state = {
  classNumber: 0, sample: 0, upload: null, coefficients: [], strength: 1, landmarks: [],
  seed: 1, firstMember: 0, nSliders: 8, view: "warp", pair: [0, 1],
};
const shown = { latencies: [], warp: null, pair: null, mosaic: null };
const MARKS = ["#d1495b", "#e09f3e", "#2a9d8f", "#8053a0"];
const N_MEMBERS = 12, LIMIT = 3;
let model = null;
window.dreamwarp = { state, shown };

const $ = (name) => document.getElementById(name);
const style = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

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

// -- decoding

function bytes(text) {
  const raw = atob(text), out = new Uint8Array(raw.length);
  for (let i = 0; i < raw.length; i++) out[i] = raw.charCodeAt(i);
  return out;
}
const floats = (text) => new Float32Array(bytes(text).buffer);
const isSignal = () => model.kind === "signal";

// Yields the samples of an answer: {shape: [channels, ...], values}.
function unpack(picture, isBatch) {
  const values = isSignal() ? floats(picture.data) : bytes(picture.data);
  const shape = isBatch ? picture.shape.slice(1) : picture.shape;
  const size = shape.reduce((a, b) => a * b, 1), n = isBatch ? picture.shape[0] : 1;
  return Array.from({ length: n }, (_, k) => ({ shape, values: values.subarray(k * size, (k + 1) * size) }));
}

// -- drawing

function fit(canvas) {
  const ratio = window.devicePixelRatio || 1, box = canvas.getBoundingClientRect();
  const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
  if (canvas.width !== width || canvas.height !== height) { canvas.width = width; canvas.height = height; }
  const pen = canvas.getContext("2d");
  pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  pen.clearRect(0, 0, box.width, box.height);
  return [pen, box.width, box.height];
}

function layers(frame) {
  if (!frame.firstChild) {
    const below = document.createElement("canvas"), over = document.createElement("canvas");
    below.className = isSignal() ? "lines" : "pixels";
    below.setAttribute("role", "img");
    over.className = "over";
    frame.append(below, over);
  }
  return [frame.children[0], frame.children[1]];
}

function drawSample(canvas, sample, behind) {
  if (isSignal()) drawLines(canvas, sample, behind); else drawPixels(canvas, sample);
}

function drawPixels(canvas, { shape, values }) {
  const [channels, rows, columns] = shape, n = rows * columns;
  if (canvas.width !== columns || canvas.height !== rows) { canvas.width = columns; canvas.height = rows; }
  const image = new ImageData(columns, rows), out = image.data;
  for (let i = 0; i < n; i++) {
    for (let k = 0; k < 3; k++) {
      if (channels === 3 || channels === 4) out[4 * i + k] = values[k * n + i];
      else if (channels === 1) out[4 * i + k] = values[i];
      else { let sum = 0; for (let c = 0; c < channels; c++) sum += values[c * n + i]; out[4 * i + k] = sum / channels; }
    }
    out[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawLines(canvas, sample, behind) {
  canvas.style.aspectRatio = "1.7";
  const [pen, width, height] = fit(canvas);
  const trace = ({ shape: [channels, length], values }, colors, thickness) => {
    for (let c = 0; c < channels; c++) {
      pen.beginPath();
      for (let i = 0; i < length; i++) {
        const share = (values[c * length + i] - model.low) / (model.high - model.low);
        pen.lineTo(width * (i + 0.5) / length, height * (0.93 - 0.86 * share));
      }
      pen.strokeStyle = colors[c % colors.length];
      pen.lineWidth = thickness;
      pen.stroke();
    }
  };
  if (behind) trace(behind, [style("--line")], 5);
  trace(sample, [style("--ink"), ...MARKS], 1.5);
}

function drawDifference(canvas, first, second) {
  if (isSignal()) {
    canvas.style.aspectRatio = "1.7";
    const [pen, width, height] = fit(canvas), [channels, length] = first.shape;
    for (let c = 0; c < channels; c++) {
      pen.beginPath();
      pen.moveTo(0, height / 2);
      for (let i = 0; i < length; i++) {
        const k = c * length + i, share = (first.values[k] - second.values[k]) / (model.high - model.low);
        pen.lineTo(width * (i + 0.5) / length, height * (0.5 - 0.5 * share));
      }
      pen.lineTo(width, height / 2);
      pen.fillStyle = MARKS[c % MARKS.length];
      pen.globalAlpha = 0.7;
      pen.fill();
    }
    return;
  }
  const [channels, rows, columns] = first.shape, n = rows * columns;
  canvas.className = "difference";
  canvas.style.imageRendering = "pixelated";
  canvas.width = columns; canvas.height = rows;
  const image = new ImageData(columns, rows), dark = matchMedia("(prefers-color-scheme: dark)").matches;
  for (let i = 0; i < n; i++) {
    let sum = 0;
    for (let c = 0; c < channels; c++) sum += first.values[c * n + i] - second.values[c * n + i];
    const share = Math.min(1, Math.abs(sum) / (255 * channels)), hue = sum < 0 ? [209, 73, 91] : [60, 140, 200];
    const ground = dark ? [26, 29, 37] : [255, 255, 255];
    for (let k = 0; k < 3; k++) image.data[4 * i + k] = ground[k] + share * (hue[k] - ground[k]);
    image.data[4 * i + 3] = 255;
  }
  canvas.getContext("2d").putImageData(image, 0, 0);
}

function drawGrid(pen, width, height, grid, pointsPerLine) {
  pen.strokeStyle = style("--accent");
  pen.globalAlpha = 0.75;
  pen.lineWidth = 1;
  for (let start = 0; start < grid.length; start += 2 * pointsPerLine) {
    pen.beginPath();
    for (let i = start; i < start + 2 * pointsPerLine; i += 2) pen.lineTo(grid[i + 1] * width, grid[i] * height);
    pen.stroke();
  }
  pen.globalAlpha = 1;
}

function drawArrows(pen, width, height, arrows) {
  let fastest = 1e-9;
  for (let i = 0; i < arrows.length; i += 4) fastest = Math.max(fastest, Math.hypot(arrows[i + 2], arrows[i + 3]));
  // Proportional to the speed, and at most one and a half gaps long.
  const gap = 1 / Math.sqrt(arrows.length / 4), scale = Math.min(1.5 * gap / fastest, 1);
  pen.strokeStyle = pen.fillStyle = style("--accent");
  for (let i = 0; i < arrows.length; i += 4) {
    const dy = arrows[i + 2] * scale * height, dx = arrows[i + 3] * scale * width, length = Math.hypot(dx, dy);
    const x = arrows[i + 1] * width - dx / 2, y = arrows[i] * height - dy / 2;
    pen.globalAlpha = 0.35 + 0.65 * Math.hypot(arrows[i + 2], arrows[i + 3]) / fastest;
    if (length < 1.2) { pen.fillRect(x - 0.6, y - 0.6, 1.2, 1.2); continue; }
    const head = Math.min(5, 0.45 * length), ux = dx / length, uy = dy / length;
    pen.lineWidth = 1.4;
    pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x + dx - ux * head, y + dy - uy * head); pen.stroke();
    pen.beginPath(); pen.moveTo(x + dx, y + dy);
    pen.lineTo(x + dx - ux * head - uy * head * 0.55, y + dy - uy * head + ux * head * 0.55);
    pen.lineTo(x + dx - ux * head + uy * head * 0.55, y + dy - uy * head - ux * head * 0.55);
    pen.fill();
  }
  pen.globalAlpha = 1;
}

function drawCurve(canvas, values, from, to, diagonal) {
  canvas.style.aspectRatio = "1.7";
  const [pen, width, height] = fit(canvas);
  const place = (value) => height * (1 - (value - from) / (to - from));
  pen.strokeStyle = style("--line");
  pen.beginPath(); pen.moveTo(0, place(diagonal ? 0 : 0)); pen.lineTo(width, place(diagonal ? 1 : 0)); pen.stroke();
  pen.strokeStyle = style("--accent");
  pen.lineWidth = 2;
  pen.beginPath();
  values.forEach((value, i) => pen.lineTo(width * i / (values.length - 1), place(value)));
  pen.stroke();
}

function drawPoints(pen, width, height, points) {
  points.forEach(([row, column], k) => {
    pen.beginPath();
    pen.arc(column * width, row * height, 5.5, 0, 7);
    pen.fillStyle = MARKS[k % MARKS.length];
    pen.strokeStyle = "#fff";
    pen.lineWidth = 2;
    pen.fill(); pen.stroke();
  });
}

// Draws the velocity in a frame with the proportions of a sample, optionally with the grid.
function drawField(frame, answer, withGrid) {
  const [below, over] = layers(frame);
  if (isSignal()) {
    const moved = floats(answer.grid);
    drawCurve(below, moved, 0, 1, true);
    return;
  }
  below.className = "blank";
  below.width = model.aspect[1]; below.height = model.aspect[0];
  const [pen, width, height] = fit(over);
  if (withGrid) drawGrid(pen, width, height, floats(answer.grid), answer.points_per_line);
  drawArrows(pen, width, height, floats(answer.arrows));
}

// -- the warp view

const update = latest(async () => {
  const start = performance.now(), { upload } = state;
  const answer = await ask("/api/warp", {
    class_number: state.classNumber, sample: state.sample, upload,
    coefficients: trim(state.coefficients), strength: state.strength,
    landmarks: isSignal() ? [] : state.landmarks,
  });
  const [sample] = unpack(answer.image, false);
  shown.warp = { ...answer, sample };
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
  if (!isSignal()) model.aspect = answer.sample.shape.slice(1);
  const [original, marks] = layers($("original")), [warped, over] = layers($("warped"));
  drawSample(original, shown.original);
  drawSample(warped, answer.sample, isSignal() ? shown.original : undefined);
  original.setAttribute("aria-label", `Sample ${state.sample} of class ${model.classes[state.classNumber].label}`);
  warped.setAttribute("aria-label", "The sample, warped");
  if (!isSignal()) {
    const [pen, width, height] = fit(marks);
    drawPoints(pen, width, height, state.landmarks);
    const [pen2, width2, height2] = fit(over);
    if ($("show-grid").checked) drawGrid(pen2, width2, height2, floats(answer.grid), answer.points_per_line);
    drawPoints(pen2, width2, height2, answer.landmarks);
  }
  drawField($("field"), answer, false);
}

async function loadOriginal() {
  if (state.upload) return;
  const answer = await ask("/api/members", { class_number: state.classNumber, first: state.sample, n: 1 });
  [shown.original] = unpack(answer.images, true);
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
  const answer = await ask("/api/members", { class_number: state.classNumber, first: state.firstMember, n: N_MEMBERS });
  fillMembers($("members"), answer, (member) => guarded(choose)(member));
  $("earlier").disabled = state.firstMember === 0;
  $("later").disabled = state.firstMember + N_MEMBERS >= count;
  markMembers();
}

function fillMembers(box, answer, onChoose) {
  box.replaceChildren();
  if (!answer.images) return;
  unpack(answer.images, true).forEach((sample, k) => {
    const button = document.createElement("button"), canvas = document.createElement("canvas");
    const member = answer.first + k;
    canvas.className = isSignal() ? "lines" : "pixels";
    button.dataset.member = member;
    button.setAttribute("aria-label", `Sample ${member}`);
    button.append(canvas);
    box.append(button);
    drawSample(canvas, sample);
    button.addEventListener("click", () => onChoose(member));
  });
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
  const row = document.createElement("div");
  row.className = "slider";
  const label = document.createElement("label"), input = document.createElement("input");
  const value = document.createElement("output"), sway = document.createElement("button");
  label.textContent = `PC ${k + 1} · ${(100 * share).toFixed(share < 0.095 ? 1 : 0)} %`;
  label.htmlFor = input.id = `component-${k + 1}`;
  Object.assign(input, { type: "range", min: -LIMIT, max: LIMIT, step: 0.05, value: 0 });
  sway.textContent = "▸";
  sway.setAttribute("aria-label", `Sway component ${k + 1}`);
  sway.setAttribute("aria-pressed", "false");
  input.addEventListener("input", () => { stop(); set(k, Number(input.value)); update(); });
  input.addEventListener("dblclick", () => { set(k, 0); update(); });
  sway.addEventListener("click", () => toggleSway(k, sway));
  row.append(label, input, value, sway);
  return row;
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
  const answer = await ask("/api/mosaic", { class_number, n: 40, strength: state.strength, seed: state.seed });
  shown.mosaic = unpack(answer.images, true);
  const boxes = shown.mosaic.map((sample, k) => {
    const figure = document.createElement("figure"), canvas = document.createElement("canvas");
    const caption = document.createElement("figcaption");
    canvas.className = isSignal() ? "lines" : "pixels";
    canvas.setAttribute("role", "img");
    canvas.setAttribute("aria-label", `A new sample of class ${answer.labels[k]}`);
    caption.textContent = answer.labels[k];
    figure.append(canvas, caption);
    return [figure, canvas, sample];
  });
  $("mosaic").replaceChildren(...boxes.map(([figure]) => figure));
  boxes.forEach(([, canvas, sample]) => drawSample(canvas, sample));
});

// -- a pair

const updatePair = latest(async () => {
  const answer = await ask("/api/align", { class_number: state.classNumber, first: state.pair[0], second: state.pair[1] });
  const [source] = unpack(answer.source), [target] = unpack(answer.target), [warped] = unpack(answer.warped);
  shown.pair = { ...answer, source, target, warped };
  $("pair-python").textContent = answer.python;
  const words = answer.left === null ? "The two samples are identical." : `${(100 * answer.left).toFixed(0)} % of the squared difference remains.`;
  $("pair-words").textContent = answer.is_usable ? words : "This pair can't be aligned: one sample is constant.";
  drawPair();
});

let blinking = null;
function drawPair(phase = "warped") {
  const pair = shown.pair;
  if (!pair) return;
  if (!isSignal()) model.aspect = pair.source.shape.slice(1);
  drawSample(layers($("pair-source"))[0], pair.source);
  drawSample(layers($("pair-target"))[0], pair.target);
  drawSample(layers($("pair-warped"))[0], pair[phase]);
  $("pair-caption").textContent = phase === "warped" ? "After" : "After · target";
  drawDifference(layers($("pair-before"))[0], pair.source, pair.target);
  drawDifference(layers($("pair-after"))[0], pair.warped, pair.target);
  drawField($("pair-field"), pair, true);
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
  const answer = await ask("/api/members", { class_number: state.classNumber, first: state.firstMember, n: N_MEMBERS });
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
  const answer = await ask("/api/upload", file);
  state.upload = answer.upload;
  state.landmarks = [];
  [shown.original] = unpack(answer.image, false);
  show("warp");
  markMembers();
  await update();
}

function download() {
  const name = `dreamwarp-${model.classes[state.classNumber].label}-${state.upload ? "own" : state.sample}`.replace(/[^\w.-]+/g, "_");
  if (!isSignal()) { layers($("warped"))[0].toBlob((blob) => save(blob, `${name}.png`)); return; }
  const { shape: [channels, length], values } = shown.warp.sample, rows = [];
  for (let i = 0; i < length; i++) rows.push(Array.from({ length: channels }, (_, c) => values[c * length + i]).join(","));
  save(new Blob([rows.join("\n") + "\n"], { type: "text/csv" }), `${name}.csv`);
}

function save(blob, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(blob);
  link.download = name;
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
  if (view === "mosaic") updateMosaic();
  if (view === "align") guarded(async () => { await loadPairMembers(); await updatePair(); })();
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
  await Promise.all([loadMembers(), loadOriginal()]);
  await update();
  if (state.view === "mosaic") updateMosaic();
  if (state.view === "align") { await loadPairMembers(); await updatePair(); }
}

function makeClasses() {
  $("classes").replaceChildren(...model.classes.map(({ label, count }, number) => {
    const button = document.createElement("button");
    button.textContent = label;
    button.title = `${count} samples`;
    button.setAttribute("role", "radio");
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
  $("download").addEventListener("click", download);
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
  const redraw = () => { if (state.view === "warp") drawWarp(); else if (state.view === "align") drawPair(); };
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
}

async function begin() {
  model = await ask("/api/model");
  model.aspect = isSignal() ? [1, 1] : model.shape.slice(1);
  document.body.classList.add(model.kind, model.is_ink ? "ink" : "photo");
  if (model.shape[0] === 3 || model.shape[0] === 4) document.body.classList.remove("ink");
  const size = model.shape.slice(1).join(" × ");
  const total = model.classes.reduce((sum, { count }) => sum + count, 0);
  $("about").textContent = `${model.model} · ${model.data}: ${total.toLocaleString("en")} ${model.kind}s of ${size} in ${model.classes.length} classes · ${model.cells.join(" × ")} cells`;
  state.strength = Math.min(3, model.strength);
  $("strength").value = state.strength;
  $("strength-value").textContent = state.strength.toFixed(2);
  if (isSignal()) {
    $("upload").accept = "text/plain,text/csv,.txt,.csv";
    $("field-caption").textContent = "Where each time goes";
    $("pair-field-caption").textContent = "Where each time goes";
    for (const name of ["hint", "clear"]) $(name).hidden = true;
    $("show-grid").parentElement.hidden = true;
  } else {
    layers($("original"))[1].addEventListener("click", placeLandmark);
  }
  if (matchMedia("(max-width: 56rem)").matches) for (const box of document.querySelectorAll("details.code")) box.open = false;
  makeClasses();
  connect();
  await chooseClass(0);
  document.body.dataset.ready = "true";
}

guarded(begin)();
