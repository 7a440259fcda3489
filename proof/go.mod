module github.com/retrysafe/idempotency/proof

go 1.25.0

replace github.com/retrysafe/idempotency => ..

require github.com/retrysafe/idempotency v0.0.0-00010101000000-000000000000
