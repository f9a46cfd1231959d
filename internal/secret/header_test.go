package secret_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headgate-io/headgate/internal/secret"
)

func TestHeaders(t *testing.T) {
	tests := map[string]struct{ text, want, problem string }{
		"none":              {"", "map[]", ""},
		"several":           {"X-A: 1\r\n\n x-b :2\nX-A: 3:4\n", "", "line 3 does not begin with the name"},
		"twice":             {"X-A: 1\r\n\n x-b:2\nx-a: 3:4\n", "map[X-A:[1 3:4] X-B:[2]]", ""},
		"empty value":       {"X-A:", "map[X-A:[]]", ""},
		"no colon":          {"X-A: 1\ns3cret", "", "line 2 has no colon"},
		"no name":           {": s3cret", "", "line 1 does not begin with the name"},
		"name with a space": {"Bearer s3cret:x", "", "line 1 does not begin with the name"},
		"other letters":     {"s3cret-ü: x", "", "line 1 does not begin with the name"},
		"forged":            {"X-A: s3cret\rX-B: c", "", "line 1 has a control character"},
		"of the transport":  {"content-length: 5", "", "sets Content-Length, which is not for Secrets to set"},
		"host":              {"HOST: s3cret", "", "sets Host, which"},
		"the caller's":      {"x-own: s3cret", "", "sets X-Own, which"},
	}
	for name, test := range tests {
		got, err := secret.Reader{Name: "a/b", Data: map[string][]byte{"headers": []byte(test.text)}}.Headers("X-Own")
		var problem *secret.Error
		switch {
		case test.problem == "" && (err != nil || fmt.Sprint(map[string][]string(got)) != test.want):
			t.Errorf("%s: got %v, %v", name, got, err)
		case test.problem != "" && (!errors.As(err, &problem) || problem.Key != "headers" || !strings.Contains(problem.Problem, test.problem) || strings.Contains(err.Error(), "s3cret")):
			t.Errorf("%s: got %v, want %s", name, err, test.problem)
		}
	}
}
