package storetest

// OnlyRule leaves all rules out but one; 0 stands for the optional interfaces.
func OnlyRule(n int) Option {
	return func(cfg *config) { cfg.wanted = func(rule int) bool { return rule == n } }
}
