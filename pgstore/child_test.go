package pgstore_test

const childRole = "PGSTORE_TEST_CHILD"

func runChild(string) {}
