// Without this, every view is a page of the server; with it, the same views change in place.

import { startAsking } from "./ask.js";
import { loadWithKey, startDialogs } from "./dialogs.js";
import { startBrowsing } from "./entity.js";
import { startKeys } from "./keys.js";

startDialogs();
await loadWithKey();
startAsking();
startBrowsing();
startKeys();
