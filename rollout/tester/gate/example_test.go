package gate_test

import (
	"fmt"
	"log"

	"github.com/headgate-io/headgate/rollout/tester/api"
	"github.com/headgate-io/headgate/rollout/tester/gate"
)

// This example opens a gate for the revision that waits at it, and for no other.
func Example() {
	gates, err := gate.Open(gate.Config{}) // with Dir, decisions survive the process
	if err != nil {
		log.Fatal(err)
	}
	defer gates.Close()
	key := api.Key{Kind: api.KindGate, Namespace: "shop", Name: "checkout", Gate: api.DefaultGate}
	check := func(checksum string) {
		answer, err := gates.Check(key, gate.CheckRequest{Phase: "Waiting", Checksum: checksum})
		fmt.Println(checksum, answer.Open, err)
	}
	check("v2")
	waiting := gates.Gate(key).Waiting
	if _, err := gates.Change("open", key, api.Change{Checksum: waiting.Checksum, Actor: "ann", Reason: "looks good"}); err != nil {
		log.Fatal(err)
	}
	check("v2")
	check("v3")
	// Output:
	// v2 false <nil>
	// v2 true <nil>
	// v3 false <nil>
}
