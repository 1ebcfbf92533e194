module conformance

go 1.21

require github.com/baton-locks/baton/clients/go v0.0.0

replace github.com/baton-locks/baton/clients/go => ../go
