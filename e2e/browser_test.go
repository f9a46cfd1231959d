package e2e

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	cdplog "github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
)

// A tab is one page in a Chromium of its own test. What a good page never does
// (errors, violations of its content security policy, dialogs of the browser)
// fails the test when it ends.
type tab struct {
	t   *testing.T
	ctx context.Context

	mu   sync.Mutex
	said []string
}

// newTab starts a Chromium without a window, which ends with the test, and opens a tab.
func newTab(t *testing.T) *tab {
	t.Helper()
	options := append(chromedp.DefaultExecAllocatorOptions[:],
		chromedp.ExecPath(tool(t, "chromium")),
		chromedp.UserDataDir(t.TempDir()),
		chromedp.Flag("headless", "new"),
		chromedp.Flag("lang", "en-US"),
		chromedp.Flag("hide-scrollbars", false),
		chromedp.DisableGPU,
		chromedp.WindowSize(1400, 800),
	)
	if os.Getuid() == 0 {
		options = append(options, chromedp.NoSandbox)
	}
	browser, stop := chromedp.NewExecAllocator(context.Background(), options...)
	p := &tab{t: t}
	var closeTab context.CancelFunc
	p.ctx, closeTab = chromedp.NewContext(browser, chromedp.WithListener(p.listen))
	t.Cleanup(func() {
		chromedp.Cancel(p.ctx)
		closeTab()
		stop()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, line := range p.said {
			t.Errorf("the page: %s", line)
		}
	})
	if err := chromedp.Do(p.ctx); err != nil { // not with a limit of time: it would be that of the browser
		t.Fatalf("start chromium: %v", err)
	}
	_, err := chromedp.Call(p.ctx, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{
		Source: `addEventListener("securitypolicyviolation", (e) => console.error("violation of", e.violatedDirective, "by", e.blockedURI))`,
	})
	check(t, err)
	return p
}

// listen collects what the page complains of. Answers with an error are said on
// the console as well: those are what some tests are about.
func (p *tab) listen(event any) {
	line := ""
	switch e := event.(type) {
	case *runtime.EventExceptionThrown:
		line = "exception " + encoded(e.ExceptionDetails)
	case *runtime.EventConsoleAPICalled:
		line = "console " + encoded(e.Args)
	case *page.EventJavascriptDialogOpening:
		line = "dialog " + e.Message
		go chromedp.Call(p.ctx, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{})
	case *cdplog.EventEntryAdded:
		if e.Entry.Level != "verbose" && (e.Entry.Source != "network" || !strings.Contains(e.Entry.Text, "Failed to load resource")) {
			line = "log " + e.Entry.Text
		}
	}
	if line != "" {
		p.mu.Lock()
		p.said = append(p.said, line)
		p.mu.Unlock()
	}
}

func encoded(v any) string {
	b, _ := json.Marshal(v)
	return string(b)
}

// do acts as a user does. It gives up after a while. The page may draw a node
// again between the moment it is found and the moment it is used: then it is
// looked for again.
func (p *tab) do(actions ...chromedp.Action[chromedp.Void]) {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	for _, action := range actions {
		err := chromedp.Do(ctx, action)
		for err != nil && ctx.Err() == nil && strings.Contains(err.Error(), "Could not find node with given id") {
			err = chromedp.Do(ctx, action)
		}
		if err != nil {
			p.shows()
			p.t.Fatal(err)
		}
	}
}

func (p *tab) open(url string) { p.t.Helper(); p.do(chromedp.Navigate(url)) }

// click clicks with the mouse on what a selector of CSS selects, when it is there.
func (p *tab) click(selector string) {
	p.t.Helper()
	p.do(chromedp.Click(chromedp.CSS(selector)))
}

func (p *tab) write(selector, text string) {
	p.t.Helper()
	p.do(chromedp.SendKeys(chromedp.CSS(selector), text))
}

// press presses keys, wherever the focus is.
func (p *tab) press(keys ...string) {
	p.t.Helper()
	for _, key := range keys {
		p.do(chromedp.KeyEvent(key))
	}
}

// strike strikes one key as a keyboard does: its character does not come when a
// listener has prevented that, which press would send regardless.
func (p *tab) strike(key string) {
	p.t.Helper()
	for _, kind := range []input.DispatchKeyEventType{input.DispatchKeyEventTypeKeyDown, input.DispatchKeyEventTypeKeyUp} {
		_, err := chromedp.Call(p.ctx, input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: kind, Key: key, Text: key})
		check(p.t, err)
	}
}

// eval returns what an expression of JavaScript is.
func eval[T any](p *tab, expression string) T {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.ctx, time.Minute)
	defer cancel()
	value, err := chromedp.Run(ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		p.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

// until returns once an expression is true.
func (p *tab) until(expression string) {
	p.t.Helper()
	again := time.NewTicker(20 * time.Millisecond)
	defer again.Stop()
	deadline := time.After(time.Minute)
	for !eval[bool](p, "Boolean("+expression+")") {
		select {
		case <-again.C:
		case <-deadline:
			p.shows()
			p.t.Fatalf("never: %s", expression)
		}
	}
}

// sees returns once text is on the page.
func (p *tab) sees(text string) {
	p.t.Helper()
	p.until("document.body.innerText.includes(" + encoded(text) + ")")
}

// shows logs what is on the page.
func (p *tab) shows() {
	p.t.Helper()
	if text, err := chromedp.Run(p.ctx, chromedp.Evaluate[string]("document.title + '\\n' + document.body.innerText")); err == nil {
		p.t.Logf("the page shows:\n%s", text)
	}
}

// look sets the size of the window and the colours that the user prefers.
func (p *tab) look(width, height int64, scheme string) {
	p.t.Helper()
	p.do(chromedp.EmulateViewport(width, height))
	_, err := chromedp.Call(p.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
		Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: scheme},
			{Name: "prefers-reduced-motion", Value: "reduce"},
		},
	})
	check(p.t, err)
}
