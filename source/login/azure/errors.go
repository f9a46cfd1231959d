package azure

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/Azure/azure-sdk-for-go/sdk/azcore/runtime"
	"github.com/Azure/azure-sdk-for-go/sdk/azidentity"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

// secrets are the values of the environment that must not show.
func (i identity) secrets() (values []string) {
	for _, name := range []string{"AZURE_CLIENT_SECRET", "AZURE_CLIENT_CERTIFICATE_PASSWORD", "IDENTITY_HEADER", "MSI_SECRET"} {
		values = append(values, i.env.Value(name))
	}
	return values
}

// explain makes one line of an error of the SDK, which prints whole answers.
func (i identity) explain(ctx context.Context, how string, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", how, context.Cause(ctx))
	}
	const hint = "check the identity and the AZURE_ variables that this program runs with"
	failed, ok := errors.AsType[*azidentity.AuthenticationFailedError](err)
	if !ok || failed.RawResponse == nil {
		return fmt.Errorf("%s: %s: %s", how, exchange.Said(err.Error(), i.secrets()...), hint)
	}
	status := failed.RawResponse.StatusCode
	text := fmt.Sprintf("%s: status %d%s: %s", how, status, i.said(failed.RawResponse), hint)
	if exchange.Final(status) {
		return fmt.Errorf("%w: %s", source.ErrProvider, text)
	}
	return errors.New(text)
}

// said returns what an answer says about a failure (RFC 6749 section 5.2).
func (i identity) said(resp *http.Response) (text string) {
	var answer struct {
		Code        string `json:"error"`
		Description string `json:"error_description"`
	}
	body, err := runtime.Payload(resp) // which the SDK has read already
	if err != nil || json.Unmarshal(body, &answer) != nil {
		return ""
	}
	for _, part := range []string{answer.Code, answer.Description} {
		if part != "" {
			text += ": " + exchange.Said(part, i.secrets()...)
		}
	}
	return text
}
