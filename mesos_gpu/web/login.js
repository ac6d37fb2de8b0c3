// Whoever is led here from a part of the page comes back to that part.

const KEY = "mesos_gpu part";
if (location.hash.startsWith("#/")) sessionStorage.setItem(KEY, location.hash);
