// Package remote has the tasks that other servers do: load tests of nGrinder
// and processes of Concord.
package remote

import (
	"errors"

	"github.com/headgate-io/headgate/rollout/tester/run"
)

var errTODO = errors.New("not built yet")

// Servers say which servers may be asked, and with which credentials.
type Servers struct {
	Hosts      []string // HOST or HOST:PORT that may be asked, *.DOMAIN for all below it; nil for none but those of the next two
	LoadURL    string   // base URL of nGrinder when metadata names none
	ProcessURL string   // base URL of Concord when metadata names none
	Keys       string   // directory of API keys and passwords, one file each; "" for none
}

// NGrinder and Concord return the task of metadata of their type, and the
// secrets that it uses, to be masked. An error is about metadata.
func (s *Servers) NGrinder(metadata map[string]string) (task run.Task, secrets []string, err error) {
	return nil, nil, errTODO
}

func (s *Servers) Concord(metadata map[string]string) (task run.Task, secrets []string, err error) {
	return nil, nil, errTODO
}
