package notify_test

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/headgate-io/headgate/rollout"
	"github.com/headgate-io/headgate/rollout/notify"
)

func ExampleStart() {
	providers, err := notify.Decode("-", strings.NewReader(`
apiVersion: rollout.headgate.dev/v1beta1
kind: AlertProvider
metadata: {name: on-call, namespace: prod}
spec: {type: slack, channel: on-call, secretRef: {name: slack}}
`))
	if err != nil {
		fmt.Println(err)
		return
	}
	canary := &rollout.Canary{Metadata: rollout.Metadata{Name: "shop", Namespace: "prod"}}
	canary.Spec.Analysis.Alerts = []rollout.Alert{{Name: "on-call", Severity: rollout.Warn, ProviderRef: rollout.ObjectRef{Name: "on-call"}}}

	ctx := context.Background()
	dispatcher, err := notify.Start(ctx, notify.Config{
		Canary:    canary,
		Providers: providers,
		Caller: &rollout.Caller{Secrets: func(context.Context, string, string) (map[string][]byte, error) {
			return map[string][]byte{"address": []byte("https://hooks.slack.com/services/T0/B0/key")}, nil
		}},
		Report: func(err error) { fmt.Fprintln(os.Stderr, err) },
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	// analysis := rollout.Analysis{Canary: canary, Sink: dispatcher, …} runs here.
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	fmt.Println(dispatcher.Close(ctx))
	// Output: <nil>
}
