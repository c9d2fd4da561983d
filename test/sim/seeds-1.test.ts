import { seedsHold } from "./seeds.ts";

seedsHold(1, 76);
