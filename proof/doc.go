// Package proof holds what checks the promise of the library: a model of its
// protocol, a simulation, histories over every store, process death, and a soak.
// All of it is test code; the README beside this file says what is checked and how
// to run it.
package proof
