// Which files of a directory are left out of an archive: by .gitignore and .mesosgpuignore, as `run --upload` reads them.

const FILES = [".gitignore", ".mesosgpuignore"]; // of one directory, the later one counts more
const NEVER = new Set([".git", ".hg", ".svn"]);

/** Whether a path of a file is left out, as a function of the path. `texts`: ignore files by their paths. */
export function ignoring(texts) {
  const specs = [...texts].map(([path, text]) => ({ prefix: path.slice(0, path.lastIndexOf("/") + 1), name: path.slice(path.lastIndexOf("/") + 1), rules: rulesOf(text) }))
    .sort((one, other) => one.prefix.length - other.prefix.length || FILES.indexOf(one.name) - FILES.indexOf(other.name));
  const known = new Map();
  const isOut = (path, isDirectory) => {
    let out = false;
    for (const { prefix, rules } of specs) {
      if (!path.startsWith(prefix)) continue;
      const rule = rules.findLast((each) => (isDirectory || !each.ofDirectories) && each.pattern.test(path.slice(prefix.length)));
      if (rule) out = !rule.keeps;
    }
    return out;
  };
  const isDirectoryOut = (path) => {
    if (!known.has(path)) {
      const parent = path.slice(0, Math.max(0, path.lastIndexOf("/")));
      known.set(path, NEVER.has(path.slice(path.lastIndexOf("/") + 1)) || (parent !== "" && isDirectoryOut(parent)) || isOut(path, true));
    }
    return known.get(path);
  };
  return (path) => {
    const slash = path.lastIndexOf("/");
    return (slash > 0 && isDirectoryOut(path.slice(0, slash))) || NEVER.has(path.slice(slash + 1)) || isOut(path, false);
  };
}

/** Whether that is the name of a file with such rules. */
export function hasRules(name) {
  return FILES.includes(name);
}

function rulesOf(text) {
  return text.split(/\r?\n/).map((line) => line.replace(/(?<!\\)\s+$/, "")).filter((line) => line && !line.startsWith("#")).map(ruleOf);
}

function ruleOf(line) {
  const keeps = line.startsWith("!"), ofDirectories = line.endsWith("/");
  const body = line.slice(keeps ? 1 : 0, ofDirectories ? -1 : undefined), isAnchored = body.includes("/");
  return { keeps, ofDirectories, pattern: new RegExp(`^${isAnchored ? "" : "(?:.*/)?"}${glob(body.replace(/^\//, ""))}$`, "s") };
}

function glob(pattern) { // as a regular expression
  return pattern.replace(/^\*\*\/|\/\*\*\/|\/\*\*$|\*+|\?|\[[!^]?\]?[^\]]*\]|\\.|[^]/g, (part) => {
    if (part === "**/") return "(?:.*/)?";
    if (part === "/**/") return "/(?:.*/)?";
    if (part === "/**") return "/.+";
    if (part[0] === "*") return "[^/]*";
    if (part === "?") return "[^/]";
    if (part[0] === "[" && part.length > 2) return part.replace(/^\[!/, "[^").replace(/(?<!^)\[/g, "\\[");
    return (part.length > 1 ? part[1] : part).replace(/[.*+?^${}()|[\]\\/]/, "\\$&");
  });
}
