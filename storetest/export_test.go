package storetest

import "slices"

// OnlyRule leaves all rules out but one; 0 stands for the optional interfaces.
// Of that one it leaves out the cases named.
func OnlyRule(n int, without ...string) Option {
	return func(cfg *config) {
		cfg.wanted = func(rule int, name string) bool { return rule == n && !slices.Contains(without, name) }
	}
}

// AllCases returns the names of all cases.
func AllCases() (all []string) {
	for _, g := range append(contract(), waiterGroup(), inspectorGroup(), txGroup()) {
		for _, c := range g.cases {
			all = append(all, g.title()+"/"+c.name)
		}
	}
	return all
}
