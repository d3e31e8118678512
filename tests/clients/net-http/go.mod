module weir.example/net-http

go 1.24
