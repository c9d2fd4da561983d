import { seedsHold } from "./seeds.ts";

seedsHold(153, 228);
