import { seedsHold } from "./seeds.ts";

seedsHold(229, 304);
