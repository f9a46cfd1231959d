package chart

import (
	"context"
	"io/fs"

	"github.com/headgate-io/headgate/chart/internal/bundle"
)

// complete returns the charts that c, the directory dir of tree, depends on and
// lacks, and what keeps them readable (reference A14).
func (s *supply) complete(ctx context.Context, tree fs.FS, dir string, c *bundle.Chart) (charts []*bundle.Chart, end func() error, err error) {
	return nil, nil, errTODO
}
