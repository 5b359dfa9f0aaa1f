"""The edge to ROS: conversion, quality of service, parameters, time, services, process life."""
