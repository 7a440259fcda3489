// Command serve serves the order API on one of the routers:
//
//	go run ./serve -router gin
//	curl -i -H 'Authorization: Bearer ann-1' -H 'Idempotency-Key: K' -H 'Content-Type: application/json' \
//	    -d '{"item":"tea"}' http://127.0.0.1:8080/orders
//
// The second curl is answered with the first one's order.
package main

import (
	"flag"
	"log"
	"net/http"
	"time"

	"github.com/retrysafe/idempotency"
	"github.com/retrysafe/idempotency/examples/routers"
	"github.com/retrysafe/idempotency/memstore"
)

func main() {
	name := flag.String("router", "servemux", "servemux, chi, gorilla, echo or gin")
	addr := flag.String("addr", "127.0.0.1:8080", "the address to listen on")
	flag.Parse()
	for _, router := range routers.Routers() {
		if router.Name == *name {
			mw := idempotency.New(memstore.New(), routers.User)
			server := http.Server{
				Addr:              *addr,
				Handler:           router.New(routers.NewOrders(), mw),
				ReadHeaderTimeout: 5 * time.Second,
			}
			log.Printf("%s on http://%s", *name, *addr)
			log.Fatal(server.ListenAndServe())
		}
	}
	log.Fatalf("no router is named %q", *name)
}
