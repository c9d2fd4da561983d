import { seedsHold } from "./seeds.ts";

seedsHold(77, 152);
