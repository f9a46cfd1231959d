package web_test

import (
	"testing"

	"github.com/headgate-io/headgate/internal/page/pagetest"
	"github.com/headgate-io/headgate/rollout/tester/web"
)

func TestPage(t *testing.T) {
	files := pagetest.Run(t, web.Handler())
	if size := pagetest.Size(files); size > 64<<10 {
		t.Errorf("%d files of %d bytes, want at most %d", len(files), size, 64<<10)
	}
}

func TestRunPath(t *testing.T) {
	if got := web.RunPath("a/b?c#d"); got != "ui/#/runs/a%2Fb%3Fc%23d" {
		t.Errorf("path %q", got)
	}
}
