// Answers of an agent, which are scripts: agents let pages of other origins read nothing else. The page shows this
// document in a frame without an origin, so an agent's script reaches neither the page nor the master.

addEventListener("message", ({ source, data: { id, url } }) => {
  if (source !== parent) return;
  const name = `answer${id}`, script = document.createElement("script");
  let value = null;
  window[name] = (given) => { value = given; };
  const tell = () => {
    delete window[name];
    script.remove();
    parent.postMessage({ id, value }, "*");
  };
  script.addEventListener("load", tell);
  script.addEventListener("error", tell); // no answer, or one with an error's status
  script.src = `${url}&jsonp=${name}`;
  document.head.append(script);
});
