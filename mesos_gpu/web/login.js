// Whoever is led here from a part of the page comes back to that part, and is told why.

const KEY = "mesos_gpu part", SESSION = "mesos_gpu session";
if (location.hash.startsWith("#/")) sessionStorage.setItem(KEY, location.hash);

document.addEventListener("DOMContentLoaded", () => {
  if (sessionStorage.getItem(SESSION) !== "ended") return;
  sessionStorage.removeItem(SESSION);
  const said = document.createElement("p");
  said.setAttribute("role", "status");
  said.className = "message";
  said.textContent = "Your session has ended. Log in again to go on where you were.";
  document.querySelector("main").prepend(said);
});
