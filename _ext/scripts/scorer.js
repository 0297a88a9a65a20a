// What search counts: text and titles as usual; a name of the library only where it is the word that was asked for.
var Scorer = {
  objNameMatch: 6,
  objPartialMatch: -10,
  objPrio: {0: 0, 1: 0, 2: 0},
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
