package git

import (
	"errors"

	"github.com/headgate-io/headgate/artifact"
	"github.com/headgate-io/headgate/source"
)

func openLocal(path string, l artifact.Limits) (upstream, error) { return nil, errors.New("later") }
func (o *Origin) directory() (source.Origin, bool, error)        { return nil, false, nil }
