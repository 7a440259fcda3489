package storetest

// The texts of the contract are those at idempotency.Store.
const (
	text01 = "Of concurrent Claims for one key with different tokens exactly one gets nil."
	text02 = "Claim again with the token that holds the key returns nil (a lost reply may be repeated) " +
		"and does not shorten the lease; a lapsed claim within its Hold counts as held by its token, " +
		"and its own Claim makes it live again. Claim with the token that completed the key returns the record."
	text03 = "A losing Claim returns the holder's token, fingerprint, response if there is one, " +
		"and the time left, and changes nothing."
	text04 = "A lapsed claim without a Hold (or past it) and an expired record are absent. " +
		"Leases, Holds and TTLs run on the store's clock and are the writer's, kept with the record: " +
		"no reader computes them from its own settings."
	text05 = "Complete replaces the claim in one atomic step: there is no instant at which the key looks absent " +
		"or half done. Later Claims get exactly the bytes that were stored: empty, nil, binary, invalid UTF-8."
	text06 = "Complete by the same token again succeeds and changes nothing (a lost reply may be repeated)."
	text07 = "Complete returns ErrClaimLost if, and only if, another token holds the key or has completed it. " +
		"A claim that lapsed and that nobody took is completed late: its answer is true, " +
		"and a second run is the worse outcome."
	text08 = "Extend sets the lease, and the Hold, of the caller's running claim, also of one that has lapsed " +
		"into its Hold. It never creates: if the claim is gone or another's it returns ErrClaimLost. " +
		"After the caller's own Complete it returns nil and changes nothing."
	text09 = "Release removes a running or lapsed claim of that token; in every other case it changes nothing " +
		"and returns nil."
	text10 = "A lapsed claim within its Hold is returned with Lapsed set. Only a Claim whose Replaces is its token " +
		"takes it over, atomically, one of n."
	text11 = "A context that is already done makes no change. Any other error means \"unknown, maybe done\"; " +
		"the caller may repeat the call."
	text12 = "A Store is safe for concurrent use. What it is given and what it gives shares no memory " +
		"with what it keeps."
	text13 = "Neither a running claim nor a live record is ever evicted to make room; a full store refuses " +
		"new claims with ErrStoreFull, and Complete never fails for want of room. " +
		"Distinct Keys never meet, whatever is in them."
)

// contract returns the rules in order.
func contract() []group {
	return []group{
		{rule: 1, name: "one winner", text: text01, cases: rule01()},
		{rule: 2, name: "the holder may claim again", text: text02, cases: rule02()},
		{rule: 3, name: "a losing claim learns who holds the key and changes nothing", text: text03, cases: rule03()},
		{rule: 4, name: "what has run out is absent", text: text04, cases: rule04()},
		{rule: 5, name: "complete is one step and keeps every byte", text: text05, cases: rule05()},
		{rule: 6, name: "complete again changes nothing", text: text06, cases: rule06()},
		{rule: 7, name: "complete only when nobody else has the key", text: text07, cases: rule07()},
		{rule: 8, name: "extend sets the lease and never creates", text: text08, cases: rule08()},
		{rule: 9, name: "release removes only its own claim", text: text09, cases: rule09()},
		{rule: 10, name: "a lapsed claim blocks and is taken over by name", text: text10, cases: rule10()},
		{rule: 11, name: "a done context changes nothing", text: text11, cases: rule11()},
		{rule: 12, name: "concurrent use without shared memory", text: text12, cases: rule12()},
		{rule: 13, name: "nothing live makes room and keys never meet", text: text13, cases: rule13()},
	}
}
