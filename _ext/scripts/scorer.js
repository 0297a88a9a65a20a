// What search counts: as usual, but the chapters come before the reference of the library, unless somebody
// asks for a name that is no word, like LinUCBAgent or with_floor.
var Scorer = {
  score: ([page, name, , , score]) =>
    page.startsWith("chapters/api/") && !/([a-z][A-Z]|_)[^.]*$/.test(name) ? score / 5 : score,
  objNameMatch: 6,
  objPartialMatch: 0,
  objPrio: {},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
