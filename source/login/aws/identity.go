package aws

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awsmiddleware "github.com/aws/aws-sdk-go-v2/aws/middleware"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/credentials/stscreds"
	"github.com/aws/aws-sdk-go-v2/service/sts"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/headgate-io/headgate/source"
	"github.com/headgate-io/headgate/source/login/internal/exchange"
)

const (
	audience = "sts.amazonaws.com" // of a job's identity token
	attempts = 2                   // for each request to a token service
)

// retrieve gets keys, for the region of at where the environment names none.
func (p *Provider) retrieve(ctx context.Context, client *http.Client, at endpoint) (aws.Credentials, error) {
	options := []func(*config.LoadOptions) error{
		config.WithDefaultRegion(at.region),
		config.WithRetryMaxAttempts(attempts),
		config.WithLogger(logging.Nop{}), // what matters is in errors
		config.WithAPIOptions([]func(*middleware.Stack) error{through(client)}),
	}
	if at.issuer != "" {
		options = append(options, config.WithRegion(at.region),
			config.WithAPIOptions([]func(*middleware.Stack) error{issuedBy(at.issuer)}))
	}
	c, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return aws.Credentials{}, err
	}
	if !p.inJob() {
		return c.Credentials.Retrieve(ctx)
	}
	token, err := exchange.JobToken(ctx, client, p.env, audience)
	if err != nil {
		return aws.Credentials{}, err
	}
	c.Credentials = aws.AnonymousCredentials{}
	role := stscreds.NewWebIdentityRoleProvider(sts.NewFromConfig(c), p.env.Value("AWS_ROLE_ARN"), identityToken(token), func(o *stscreds.WebIdentityRoleOptions) {
		if o.RoleSessionName = p.env.Value("AWS_ROLE_SESSION_NAME"); o.RoleSessionName == "" {
			o.RoleSessionName = "headgate"
		}
	})
	return role.Retrieve(ctx)
}

// through makes every request of the SDK go through client, as the last step
// before it would be sent. The SDK does not use the client of its configuration
// for the credentials of containers, and refuses it together with AWS_CA_BUNDLE.
func through(client *http.Client) func(*middleware.Stack) error {
	sender := smithyhttp.NewClientHandlerWithOptions(client)
	return func(stack *middleware.Stack) error {
		return stack.Deserialize.Add(middleware.DeserializeMiddlewareFunc("headgate",
			func(ctx context.Context, in middleware.DeserializeInput, _ middleware.DeserializeHandler) (middleware.DeserializeOutput, middleware.Metadata, error) {
				resp, metadata, err := sender.Handle(ctx, in.Request)
				return middleware.DeserializeOutput{RawResponse: resp}, metadata, err
			}), middleware.After)
	}
}

// issuedBy makes host the token service. Other services of the SDK keep their endpoints.
func issuedBy(host string) func(*middleware.Stack) error {
	const before = "ResolveEndpointV2"
	return func(stack *middleware.Stack) error {
		if _, found := stack.Finalize.Get(before); !found {
			return nil
		}
		return stack.Finalize.Insert(middleware.FinalizeMiddlewareFunc("headgateIssuer",
			func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
				if req, ok := in.Request.(*smithyhttp.Request); ok && awsmiddleware.GetServiceID(ctx) == sts.ServiceID {
					req.URL.Scheme, req.URL.Host = "https", host
				}
				return next.HandleFinalize(ctx, in)
			}), before, middleware.After)
	}
}

// inJob reports whether the identity is a role that a job of Actions assumes.
func (p *Provider) inJob() bool {
	return p.inRole() && !p.env.Has("AWS_WEB_IDENTITY_TOKEN_FILE")
}

// inRole reports whether the identity is AWS_ROLE_ARN, assumed with an identity token.
func (p *Provider) inRole() bool {
	return p.env.Has("AWS_ROLE_ARN") && !p.env.Has("AWS_ACCESS_KEY_ID") && !p.env.Has("AWS_PROFILE") &&
		(p.env.Has("AWS_WEB_IDENTITY_TOKEN_FILE") || p.env.Has(exchange.JobVariables...))
}

// belongs reports why the role of this program may not be assumed in region,
// whose token service would be shown an identity token that is good elsewhere.
func (p *Provider) belongs(region string) error {
	cloud := partitionOf(region).name
	if p.inRole() && !strings.HasPrefix(p.env.Value("AWS_ROLE_ARN"), "arn:"+cloud+":") {
		return fmt.Errorf("%w: AWS_ROLE_ARN is not a role of %s, the partition that region %s is in: set it to a role there",
			source.ErrProvider, cloud, region)
	}
	return nil
}

// An identityToken supplies a token that was issued already.
type identityToken string

// GetIdentityToken implements [stscreds.IdentityTokenRetriever].
func (t identityToken) GetIdentityToken() ([]byte, error) { return []byte(t), nil }

// explain returns an error of one line for an error of the SDK. what is the work
// that failed. The error shows neither secrets nor those of the environment.
func (p *Provider) explain(ctx context.Context, what string, err error, secrets ...string) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s: %w", what, context.Cause(ctx))
	}
	for _, name := range []string{"AWS_CONTAINER_AUTHORIZATION_TOKEN", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"} {
		secrets = append(secrets, p.env.Value(name))
	}
	const hint = "check the role and the AWS_ variables that this program runs with"
	if api, ok := errors.AsType[smithy.APIError](err); ok && refused(api, err) {
		return fmt.Errorf("%w: %s: %s: %s", source.ErrProvider, exchange.Said(api.ErrorCode()), exchange.Said(api.ErrorMessage(), secrets...), hint)
	}
	return fmt.Errorf("%s: %s: %s", what, exchange.Said(err.Error(), secrets...), hint)
}

// refused reports whether a service will give the same answer again: it was not
// asked too often, and the failure is not its own.
func refused(api smithy.APIError, err error) bool {
	if _, often := retry.DefaultThrottleErrorCodes[api.ErrorCode()]; often {
		return false
	}
	if resp, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return exchange.Final(resp.HTTPStatusCode())
	}
	return api.ErrorFault() == smithy.FaultClient
}
