package tester_test

import (
	"testing"

	"github.com/headgate-io/headgate/rollout/tester/api"
)

// TestPayloadNamesItsField has a body of the wrong kind refused with the field
// and what it has to be.
func TestPayloadNamesItsField(t *testing.T) {
	d := openDoor(t, nil)
	for body, want := range map[string]string{
		`{"name": "a", "metadata": {"type": "cmd", "cmd": 5}}`:    "metadata.cmd: a number; expected a string",
		`{"metadata": {"type": "cmd", "cmd": "true", "b": true}}`: "metadata.b: a boolean; expected a string",
		`{"metadata": []}`: "metadata: an array; expected an object",
		`{"name": 5}`:      "name: a number; expected a string",
		`[]`:               "the body is not a JSON object but a JSON array",
	} {
		d.post("/", body).is(t, body, 400, want)
	}
	d.post(gatePath+"/open", `{"ttl": 5}`).is(t, "an option", 400, "ttl: a number; expected a string")
}

// TestCheckWithoutName answers a check whose payload names no canary, and makes
// no wait of it; a gate that was opened without a name is open.
func TestCheckWithoutName(t *testing.T) {
	d := openDoor(t, nil)
	for _, body := range []string{`{}`, `null`, `{"name": "", "namespace": "shop"}`} {
		d.post("/gate/check", body).is(t, body, 403, "")
	}
	d.post("/gate/check", `{"name": "app"}`).is(t, "a name without a namespace", 403, "")
	gates, err := (&api.Client{URL: d.url}).Gates(t.Context(), api.Filter{})
	if err != nil || len(gates) != 1 || gates[0].Name != "app" {
		t.Errorf("%+v, %v", gates, err)
	}
	d.post("/gate/open", `{}`).is(t, "open", 202, "")
	d.post("/gate/check", `{}`).is(t, "opened", 200, "")
}
