module github.com/retrysafe/idempotency/proof

go 1.25.0

replace github.com/retrysafe/idempotency => ..
