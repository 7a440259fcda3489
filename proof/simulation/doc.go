// Package simulation runs the library in seeded schedules of virtual processes,
// faults and crashes, in virtual time. All of it is test code: see the README
// beside this folder.
package simulation
