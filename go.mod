module github.com/retrysafe/idempotency

go 1.25.0
