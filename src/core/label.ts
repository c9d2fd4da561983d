/** What a label looks like: what people filter by. */
export const labelPattern = /^[a-z0-9][a-z0-9._:/-]{0,63}$/;
export const LABEL_RULE = "a label is up to 64 letters, digits and . _ : / -";
