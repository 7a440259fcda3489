// Package proof holds what checks the promise of the library: a model of its
// protocol, a simulation, and histories over every store. All of it is test
// code; the README beside this file says what is checked and how to run it.
package proof
